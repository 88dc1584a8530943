"""The report on a certified agent: one HTML file for whoever has to sign."""
