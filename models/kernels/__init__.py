"""Operations written for speed on a CPU; each has an equivalent in torch.

These files import only `common` and each other.
"""
