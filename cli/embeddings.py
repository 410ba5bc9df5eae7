"""A sentence-embedding model as a similarity: the optional extra `embeddings`."""

from __future__ import annotations

from collections.abc import Sequence

from ..projections.ranking import EmbeddingSimilarity
from ..schemas.errors import ConfigError


def embedding_similarity(model: str) -> EmbeddingSimilarity:
    """Similarity by a model of sentence-transformers, by its name or path; the first use may download it.

    Raises:
        ConfigError: the extra is not installed, or the model cannot be loaded.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(
            "sentence embeddings are an extra: pip install 'trustfold[embeddings]', or leave --embeddings out"
        ) from error
    try:
        loaded = SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the embedding model {model!r} cannot be loaded: {error}") from error

    def encode(texts: list[str]) -> Sequence[Sequence[float]]:
        vectors: Sequence[Sequence[float]] = loaded.encode(texts)
        return vectors

    return EmbeddingSimilarity(encode)
