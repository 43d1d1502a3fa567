"""What a failure says about where it arises: the first place to look at."""
