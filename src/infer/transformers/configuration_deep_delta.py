"""The configuration of a Deep Delta model, for Hugging Face transformers (4.5x and 5.x)."""

from transformers import PretrainedConfig


class DeepDeltaConfig(PretrainedConfig):
    """Sizes under the names that other programs look for; everything else of the model in the dictionary `ddl`.

    `ddl` holds the options `model.*` of the program ddl: the residual rule (`ddl["residual"]`), its own options
    (`ddl["channels"]`, `ddl["gate"]`, ...), and what every model has (`ddl["norm_eps"]`, `ddl["rope_base"]`, ...).
    The program reads the model back from this dictionary, so it is kept as it is.
    """

    model_type = "deep_delta"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=8192,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=2,
        head_dim=None,
        intermediate_size=None,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        use_cache=True,
        ddl=None,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.intermediate_size = intermediate_size or 8 * hidden_size // 3
        self.max_position_embeddings = max_position_embeddings
        self.use_cache = use_cache
        self.ddl = ddl or {"residual": "baseline"}
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)
