"""Whether the Hugging Face Hub can be reached."""

from nanoset_ref.io.extras import extra


def hub_problem() -> str:
    """Why the Hub cannot be reached, or "". Libraries that load from it retry for a minute."""
    with extra("text", "reading from the Hub"):
        from huggingface_hub import constants, get_session

    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # the HTTP library raises errors of its own
        return f"{constants.ENDPOINT} cannot be reached: {error}"
    return ""
