"""Recipes: one module each, chosen by name."""
