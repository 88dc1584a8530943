"""Upload to the Hugging Face hub, through its own client."""

from collections.abc import Sequence
from pathlib import Path

from sb3_camp.errors import InputError


def check_repository(repository: str) -> None:
    """
    :param repository: Name of a repository, "user/name"
    :raises InputError: if it cannot be one, or if the client is not installed
    """
    try:
        from huggingface_hub.utils import HFValidationError, validate_repo_id
    except ImportError as error:
        raise InputError("--push needs the package huggingface_hub: pip install huggingface_hub") from error
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise InputError(f"--push {repository}: {error}") from error
    if repository.count("/") != 1:
        raise InputError(f"--push {repository}: give the name as USER/NAME")


def upload(folder: Path, files: Sequence[Path], repository: str, *, private: bool = False) -> str:
    """
    :param folder: The folder
    :param files: What to upload of it, nothing else
    :param repository: Name of the repository, "user/name", made if it does not exist
    :param private: Whether a repository that is made is a private one
    :return: where it is now
    :raises InputError: if the upload fails
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        url = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=[str(file.relative_to(folder)) for file in files],
            commit_message="A certified agent, with its model card",
        )
    except Exception as error:  # of the network, the account or the hub
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"the upload failed: {reason} ({folder} is complete: log in with `hf auth login` and try again)"
        ) from error
    return str(url)
