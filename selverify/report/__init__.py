"""The report: tables of outcomes, targets, and the pages that show them."""
