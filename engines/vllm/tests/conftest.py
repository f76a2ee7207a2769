import models  # sets vLLM's environment before it is imported
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fused():
    """The module, with its classes in the place of vLLM's."""
    from halyard.vllm import fused
    fused.install()
    return fused


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """The folder of a small model, made where it is asked for the first time."""
    made = {}

    def folder_of(model_type, **more):
        key = (model_type, *map(str, sorted(more.items())))
        if key not in made:
            made[key] = models.save(tmp_path_factory.mktemp(model_type), model_type, **more)
        return made[key]
    return folder_of


@pytest.fixture
def pair(fused, folder_of, monkeypatch):
    """(vLLM's, ours): engines of one model."""
    def pair(model_type, dtype=None, more=None, **settings):
        folder = folder_of(model_type, **(more or {}))
        dtype = dtype or models.dtype_of(model_type)
        with monkeypatch.context() as patch:
            patch.setattr(fused, "_why_not", lambda module: "a test compares with vLLM's")
            theirs = models.make_engine(folder, dtype, **settings)
        return theirs, models.make_engine(folder, dtype, **settings)
    return pair
