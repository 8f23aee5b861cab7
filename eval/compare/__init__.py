"""Is the difference between two models, or to a published number, more than chance?"""
