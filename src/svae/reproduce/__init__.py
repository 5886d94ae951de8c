"""The paper's tables and figures, one module each, with the paper's numbers beside ours."""
