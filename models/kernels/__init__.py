"""Operations written for speed on a CPU; what they compute, torch computes too.

Fenced off: these files import none of the project but `common` and each other.
"""
