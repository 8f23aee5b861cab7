"""The keys and types of a mapping in one of our YAML files."""


def check(entry, needed, optional=None):
    """Fail unless `entry` has all needed keys, no unknown ones, and values of these types (a bool is no number)."""
    assert needed.keys() <= entry.keys() <= needed.keys() | (optional or {}).keys(), entry
    for name, value in entry.items():
        kinds = (needed | (optional or {}))[name]
        assert type(value) in (kinds if isinstance(kinds, tuple) else (kinds,)), (name, entry)
