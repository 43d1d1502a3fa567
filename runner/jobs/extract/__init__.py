"""A run of `strategy=extract`: a part of a model that the user names, with recorded values, so that it stands alone."""
