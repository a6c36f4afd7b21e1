"""The submitter's side: what is done in the folder that a job is submitted from."""
