"""What crosses trust boundaries in a secure sum: shares, envelopes, signed documents, the steps of a round."""
