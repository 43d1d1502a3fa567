"""Whether the failure of the whole model arises inside an answer."""
