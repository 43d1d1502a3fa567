"""What a run leaves for people and programs: result.json, REPORT.md, repro.py, replay.yaml, live progress."""
