"""The comparison beside other programs: peers, jobs, plots and the page."""
