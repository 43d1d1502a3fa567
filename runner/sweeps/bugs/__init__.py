"""Many failures: how many bugs are they?"""
