"""What each setting means, for help and docs: out of the classes and the comments in `conf/`."""
