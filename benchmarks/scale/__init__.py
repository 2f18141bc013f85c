"""The model of many hosts: constants measured on this machine, and what follows from them for any number.

python -m benchmarks.scale            measures, and writes both into docs/scale.md
python -m benchmarks.scale --model    only the model anew, of the constants measured before
"""
