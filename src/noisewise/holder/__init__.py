"""What runs at a holder and sees rows: read a table, encode it, sum it up, add noise, publish."""
