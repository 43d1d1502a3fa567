"""Every setting declared once: typed, documented, checked when a run is composed."""
