"""A run of `strategy=layerwise`: every tensor inside a model against the reference's, and which is wrong first."""
