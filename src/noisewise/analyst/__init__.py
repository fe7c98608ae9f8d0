"""SEES RELEASES: from noisy statistics to a posterior that counts their noise."""
