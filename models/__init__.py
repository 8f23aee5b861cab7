"""Networks and losses; tensors in, tensors out.

Letters in the shape comments of this folder:

    B sentences of this process    N sentences of all processes    V views (copies) of a sentence
    L tokens, padded               M masked tokens                 T rows of a flattened batch
    H hidden width                 D width of a projected vector   W processes
"""
