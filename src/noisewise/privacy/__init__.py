"""What is spent and why it is enough: sensitivity, calibration, noise, accounting, the ledger."""
