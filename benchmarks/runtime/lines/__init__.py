"""One module a subject: what to measure, with which targets (`plans`), and the program of all sides."""
