"""Hypotheses about a wrong score, such as accuracy or AUC."""
