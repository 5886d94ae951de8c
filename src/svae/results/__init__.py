"""What a finished run has to show: numbers about it, and the arrays and tables of its report."""
