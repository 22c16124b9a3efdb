"""One file for each command, or for a few that are alike."""
