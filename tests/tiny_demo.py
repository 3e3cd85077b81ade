"""A family of the demo's kind that trains in a second, to be of no use."""

from mergekit_map.demo.corpus import CorpusSizes
from mergekit_map.demo.family import FamilySizes
from mergekit_map.demo.training import ModelSizes, Schedule

FEW_STEPS = Schedule(steps=3, learning_rate=1e-3, matrix_learning_rate=0.01, batch=2)
TINY = FamilySizes(
    corpus=CorpusSizes(
        code_characters=600_000,
        math_pages=10,
        held_out_math_pages=3,
        largest_operand=15,
    ),
    model=ModelSizes(
        vocabulary=400, hidden=32, intermediate=64, layers=2, heads=2, positions=32
    ),
    base=FEW_STEPS,
    code=FEW_STEPS,
    math=FEW_STEPS,
    tokenizer_documents=10,
    held_out_characters=4_000,
)
