import models  # sets the environment variables that vLLM reads when it is imported
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fused():
    """halyard.vllm.fused, installed: its classes have replaced vLLM's."""
    from halyard.vllm import fused
    fused.install()
    return fused


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """A function that returns the folder of a small model, which it saves at the first call for that model."""
    made = {}

    def folder_of(model_type, **more):
        key = (model_type, *map(str, sorted(more.items())))
        if key not in made:
            made[key] = models.save(tmp_path_factory.mktemp(model_type), model_type, **more)
        return made[key]
    return folder_of


@pytest.fixture
def pair(fused, folder_of, monkeypatch):
    """A function that returns two engines of one model: stock vLLM, and vLLM with Halyard."""
    def pair(model_type, dtype=None, more=None, **settings):
        folder = folder_of(model_type, **(more or {}))
        dtype = dtype or models.dtype_of(model_type)
        with monkeypatch.context() as patch:
            patch.setattr(fused, "_why_not", lambda module: "a test compares with vLLM's")
            theirs = models.make_engine(folder, dtype, **settings)
        return theirs, models.make_engine(folder, dtype, **settings)
    return pair
