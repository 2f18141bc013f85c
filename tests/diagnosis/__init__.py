"""Failing, slow and healthy programs as users have them, and what each should be told to be."""
