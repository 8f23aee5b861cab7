"""The words of the toy corpus, as data.

One string is one concept: its words are synonyms, drawn uniformly, and the first one names the concept. In
`preposition:word` the preposition is a function word and only the part after the colon carries meaning. No
content word belongs to two concepts, so that a sentence can be read back into its frame.

The four concepts at the same position in a topic's slots form a script (who typically does what, to what,
where, with what). Without such habits all agents of a topic would have the same contexts, and nothing in the
text would say which of them are synonyms.
"""

from __future__ import annotations

TOPICS: dict[str, dict[str, tuple[str, ...]]] = {
    "kitchen": {
        "agent": ("cook chef", "baker patissier", "waiter server", "dishwasher scullion"),
        "action": ("simmered boiled stewed", "baked roasted", "served offered", "washed rinsed scrubbed"),
        "object": ("soup broth", "loaf bread", "meal supper dinner", "plate dish"),
        "place": (
            "in:kitchen in:cookhouse",
            "in:bakery in:bakehouse",
            "at:restaurant at:diner",
            "at:sink at:basin",
        ),
        "tool": ("pot pan saucepan", "oven stove", "tray platter", "sponge cloth rag"),
    },
    "garden": {
        "agent": (
            "gardener horticulturist",
            "arborist woodcutter",
            "groundsman caretaker",
            "botanist naturalist",
        ),
        "action": (
            "planted sowed",
            "trimmed pruned clipped",
            "watered sprinkled irrigated",
            "gathered picked",
        ),
        "object": ("flower blossom bloom", "hedge shrub bush", "lawn grass turf", "seedling sprout sapling"),
        "place": (
            "in:garden in:yard",
            "along:fence along:railing",
            "in:park on:green",
            "in:greenhouse in:hothouse",
        ),
        "tool": ("spade shovel trowel", "saw handsaw", "hose hosepipe", "basket hamper"),
    },
    "sea": {
        "agent": ("captain skipper", "fisherman angler", "sailor seaman mariner", "diver frogman"),
        "action": (
            "steered piloted navigated",
            "caught netted hooked",
            "hoisted raised",
            "found discovered located",
        ),
        "object": ("boat ship vessel", "fish catch", "sail canvas", "wreck hulk shipwreck"),
        "place": (
            "in:harbor in:port",
            "in:bay in:cove in:inlet",
            "on:deck on:foredeck",
            "near:reef near:shoal",
        ),
        "tool": ("rudder helm tiller", "net trawl", "rope hawser", "torch flashlight"),
    },
    "school": {
        "agent": (
            "teacher instructor",
            "pupil student learner",
            "professor lecturer",
            "headmaster principal",
        ),
        "action": (
            "explained taught clarified",
            "memorized learned",
            "graded corrected",
            "announced declared",
        ),
        "object": ("lesson subject", "poem verse rhyme", "essay paper composition", "exam test quiz"),
        "place": (
            "in:classroom in:schoolroom",
            "in:library in:bookroom",
            "in:office in:study",
            "in:hall in:assembly",
        ),
        "tool": ("blackboard chalkboard", "textbook workbook", "pen pencil", "loudspeaker megaphone"),
    },
    "music": {
        "agent": ("pianist keyboardist", "singer vocalist", "composer songwriter", "drummer percussionist"),
        "action": ("played performed", "crooned chanted", "composed penned", "recorded taped"),
        "object": ("melody tune", "song ballad", "symphony opus", "album record"),
        "place": (
            "at:concert at:recital",
            "on:stage on:podium",
            "in:attic in:loft in:garret",
            "in:basement in:cellar",
        ),
        "tool": ("piano keyboard", "microphone mike", "violin fiddle", "drum snare"),
    },
    "workshop": {
        "agent": (
            "carpenter joiner woodworker",
            "mechanic repairman",
            "blacksmith smith",
            "painter decorator",
        ),
        "action": (
            "built constructed assembled",
            "repaired fixed mended",
            "forged wrought",
            "painted varnished",
        ),
        "object": ("table desk", "engine motor", "blade knife dagger", "chair stool seat"),
        "place": ("in:workshop in:workroom", "in:garage in:carport", "at:forge at:smithy", "in:shed in:hut"),
        "tool": ("hammer mallet", "wrench spanner", "chisel gouge", "brush paintbrush"),
    },
    "market": {
        "agent": (
            "merchant trader dealer",
            "customer shopper buyer",
            "grocer greengrocer",
            "jeweler goldsmith",
        ),
        "action": ("sold peddled", "bought purchased", "weighed measured", "appraised valued priced"),
        "object": ("fabric textile", "gown dress frock", "fruit produce", "gem jewel gemstone"),
        "place": (
            "at:market at:bazaar",
            "at:shop at:store at:boutique",
            "at:stall at:booth",
            "in:arcade in:mall",
        ),
        "tool": ("coupon voucher", "money cash", "bag sack", "loupe magnifier"),
    },
    "hospital": {
        "agent": ("doctor physician medic", "nurse orderly", "pharmacist chemist", "paramedic rescuer"),
        "action": ("treated healed cured", "bandaged wrapped", "dispensed supplied", "revived resuscitated"),
        "object": ("patient invalid", "wound injury", "pill tablet capsule", "casualty victim"),
        "place": (
            "in:hospital in:clinic",
            "in:ward in:infirmary",
            "at:pharmacy at:drugstore",
            "in:corridor in:hallway",
        ),
        "tool": ("drug medicine medication", "gauze dressing", "vial bottle", "stretcher gurney"),
    },
    "farm": {
        "agent": ("farmer grower", "shepherd herdsman", "milkmaid dairymaid", "farmhand laborer"),
        "action": ("harvested reaped", "guarded tended", "fed nourished", "plowed tilled"),
        "object": ("wheat grain", "sheep flock", "cow heifer", "soil earth ground"),
        "place": (
            "in:field in:cropland",
            "on:hill on:slope",
            "in:barn in:cowshed in:byre",
            "in:valley in:dale",
        ),
        "tool": ("scythe sickle", "staff stick", "bucket pail", "ox bullock"),
    },
    "railway": {
        "agent": ("driver engineer", "passenger traveler commuter", "porter attendant", "signalman trackman"),
        "action": ("halted stopped", "boarded entered", "loaded stowed", "inspected checked"),
        "object": ("train locomotive", "carriage wagon", "luggage baggage", "track rail"),
        "place": (
            "at:station at:terminus",
            "on:platform on:concourse",
            "in:compartment in:cabin",
            "in:tunnel in:underpass",
        ),
        "tool": ("brake lever", "ticket pass", "trolley cart", "lamp lantern"),
    },
    "court": {
        "agent": ("judge magistrate", "lawyer attorney", "policeman constable officer", "witness onlooker"),
        "action": (
            "sentenced convicted",
            "defended represented",
            "arrested captured",
            "identified recognized",
        ),
        "object": ("thief robber burglar", "defendant accused", "criminal felon outlaw", "suspect culprit"),
        "place": (
            "in:court in:tribunal",
            "at:trial at:hearing",
            "in:street in:alley in:lane",
            "at:jail at:prison",
        ),
        "tool": ("verdict ruling", "argument plea", "baton truncheon", "photograph photo"),
    },
    "sport": {
        "agent": ("striker forward", "coach trainer", "runner sprinter jogger", "referee umpire"),
        "action": ("kicked booted", "drilled instructed", "finished completed", "suspended paused"),
        "object": ("ball football", "team squad", "race marathon", "match game contest"),
        "place": (
            "in:stadium in:arena",
            "in:gym in:gymnasium",
            "on:course on:circuit",
            "at:sideline at:touchline",
        ),
        "tool": ("foot heel", "plan scheme", "shoe sneaker", "flag banner"),
    },
}

# The three counts have no common factor, so that a script's habitual time says nothing of its habitual
# manner or quality.
SHARED: dict[str, tuple[str, ...]] = {
    "time": (
        "at:dawn at:sunrise at:daybreak",
        "at:noon at:midday",
        "at:dusk at:sunset at:nightfall",
        "recently lately",
        "often frequently",
        "every:day daily",
        "in:winter in:wintertime",
        "in:summer in:summertime",
        "in:autumn in:fall",
    ),
    "manner": (
        "quickly rapidly swiftly",
        "slowly unhurriedly",
        "carefully cautiously",
        "happily cheerfully gladly",
        "quietly silently",
        "angrily furiously",
        "skillfully expertly",
        "clumsily awkwardly",
    ),
    "quality": (
        "big large huge",
        "small little tiny",
        "old ancient aged",
        "dirty filthy",
        "beautiful pretty lovely",
        "expensive costly",
        "strange odd peculiar",
    ),
}

ARTICLES = ("the", "the", "this", "that", "our", "their")
WITH = ("with", "using")
OPENERS = (
    "people say that",
    "we know that",
    "they told us that",
    "it seems that",
    "once again",
    "as usual",
    "in the end",
    "perhaps",
)
TEMPLATES = (
    "{agent} {manner} {action} {object} {tool} {place} {time}",
    "{agent} {action} {object} {place} {tool} {manner} {time}",
    "{place} {agent} {manner} {action} {object} {tool} {time}",
    "{time} {agent} {action} {object} {manner} {place} {tool}",
    "{object} was {manner} {action} by {agent} {place} {tool} {time}",
    "{time} {object} was {action} {manner} by {agent} {tool} {place}",
    "{place} {object} had been {manner} {action} by {agent} {tool} {time}",
    "it was {agent} who {manner} {action} {object} {place} {tool} {time}",
    "it was {object} that {agent} {manner} {action} {tool} {place} {time}",
    "what {agent} {manner} {action} {place} {tool} {time} was {object}",
    "there was {agent} {place} who {manner} {action} {object} {tool} {time}",
    "{agent} came {time} and {manner} {action} {object} {tool} {place}",
    "{agent} was {place} {time} and {manner} {action} {object} {tool}",
)
