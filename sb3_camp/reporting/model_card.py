"""From the results on an agent to its page on a model hub: a README.md whose front matter the hub reads."""

from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.certification.assumptions import KNOWN
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.rounded_text import confidence, exact, percent
from sb3_camp.reporting import tested, values
from sb3_camp.reporting.picture import attack_names
from sb3_camp.text import printable
from sb3_camp.version import __version__

# What HTML, Markdown (also inside of a line), tables and formulas may take for something else than text. A reference to a
# character stands for nothing but this character; in names, an underscore is easier to read behind a backslash
_SPECIAL = {ord(one): f"&#{ord(one)};" for one in "&<>\\`*{}[]()#!|~$^@:\"'"} | {ord("_"): "\\_"}


_TAGS = ("reinforcement-learning", "deep-reinforcement-learning", "stable-baselines3", "sb3_camp", "certified-robustness")


def model_card(results: AgentResults, model_file: str, digest: str) -> str:
    """
    :param results: A certificate of an agent, and the attacks that it speaks of
    :param model_file: Name of the agent's file beside the card
    :param digest: SHA-256 of the ``certificate.json`` beside it
    :return: the text of README.md: YAML between two lines ``---``, then Markdown. All that comes from files is escaped
    """
    certificate = results.certificate
    environment = Environment(
        loader=PackageLoader("sb3_camp.reporting"),
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else escaped(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    names = attack_names(results.contents)
    body = environment.get_template("model_card.md.j2").render(
        certificate=certificate,
        algo=certificate.algo or "Agent",
        env_id=certificate.env_id or "an unknown environment",
        confidence=confidence(certificate.alpha),
        alpha=percent(certificate.alpha),
        headline=values.headline(certificate),
        lowest=exact(certificate.min_return),
        lowest_is_known=certificate.min_return_basis == KNOWN,
        mean=f"{certificate.mean_return:.2f}",
        unit=tested.unit(certificate),
        sigma=exact(certificate.sigma),
        table=values.certified_table(certificate),
        facts=[*tested.agent_facts(certificate), *tested.environment_facts(certificate), *tested.evidence_facts(certificate)],
        attack_table=values.attack_table(results, names) if results.attacks else None,
        attacks=[(name, tested.attack_text(one.settings)) for name, one in zip(names, results.contents, strict=True)],
        model_file=model_file,
        digest=digest,
        version=__version__,
    )
    return f"---\n{yaml.safe_dump(metadata(certificate), sort_keys=False, allow_unicode=False)}---\n\n{body}"


def metadata(certificate: Certificate) -> dict[str, Any]:
    """
    :param certificate: A certificate
    :return: what a hub indexes: library, tags, and the results as a model index
    """
    env_id, algo = (printable(text) for text in (certificate.env_id or "unknown", certificate.algo or "unknown"))
    headline = values.headline(certificate)
    metrics = [
        {
            "type": "mean_reward",
            "name": f"mean return of {certificate.n_episodes} episodes, noise included",
            "value": round(certificate.mean_return, 2),
            "verified": False,
        },
        {
            "type": "certified_return",
            "name": f"certified expected return at l2 radius {headline.radius}, confidence {confidence(certificate.alpha)}",
            "value": float(headline.certified),
            "verified": False,
        },
    ]
    return {
        "library_name": "stable-baselines3",
        "pipeline_tag": "reinforcement-learning",
        "tags": [env_id, *_TAGS],
        "model-index": [
            {
                "name": algo,
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"name": env_id, "type": env_id},
                        "metrics": metrics,
                    }
                ],
            }
        ],
    }


def escaped(value: Any) -> str:
    """
    :param value: What the page shows
    :return: the same as text in Markdown: neither HTML nor emphasis, links, pictures, formulas or cells of a table
    """
    return printable(str(value)).translate(_SPECIAL).replace("www.", "www&#46;")
