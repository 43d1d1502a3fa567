"""`strategy=triage`: from "it is wrong" to what fails, why, since when, and what helps: a flowchart as a run."""
