"""The picture of certificates: curves that do not promise too much, and that can be told apart."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from support.run_folders import noise

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import certificate_figure, default_labels
from sb3_camp.errors import InputError


def made_certificate(**changes: Any) -> Certificate:
    made: dict[str, Any] = {
        "algo": "dqn",
        "env_id": "Made-v0",
        "sigma": 0.4,
        "method": "berk-jones",
        "alpha": 0.05,
        "n_episodes": 100,
        "min_return": 0.0,
        "mean_return": 9.0,
        "radii": [0.0, 0.5, 1.0],
        "certified_return": [8.0, 5.0, 2.0],
        "sources": [],
    }
    return Certificate(**{**made, **changes})


def curves(figure: Figure, panel: int = 0) -> list[Any]:
    """The curves of a panel, without the markers of the means."""
    return [line for line in figure.axes[panel].get_lines() if line.get_drawstyle() == "steps-pre"]


def legend(figure: Figure, panel: int = 0) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].get_legend().get_texts()]


def test_a_curve_is_never_above_the_certificate():
    figure = certificate_figure([made_certificate(), made_certificate(radii=[0.5, 1.0], certified_return=[5.0, 2.0])])
    first, second = curves(figure)
    np.testing.assert_array_equal(first.get_xydata(), [[0, 8], [0.5, 5], [1, 2]])
    # what holds at the first radius holds for all smaller ones
    np.testing.assert_array_equal(second.get_xydata(), [[0, 5], [0.5, 5], [1, 2]])
    path = first.get_path().vertices  # the staircase itself
    np.testing.assert_array_equal(path, [[0, 8], [0, 5], [0.5, 5], [0.5, 2], [1, 2]])


def test_the_only_radius_0_is_seen():
    figure = certificate_figure([made_certificate(radii=[0.0], certified_return=[8.0])])
    assert curves(figure)[0].get_marker() == "."


def test_the_mean_is_marked_at_radius_0_in_the_colour_of_its_curve():
    figure = certificate_figure([made_certificate(), made_certificate(mean_return=7.0)])
    marked = [line for line in figure.axes[0].get_lines() if line not in curves(figure)]
    assert [line.get_xydata().tolist() for line in marked] == [[[0, 9]], [[0, 7]]]
    assert [line.get_color() for line in marked] == [line.get_color() for line in curves(figure)]
    assert all(line.get_marker() not in ("", "None") for line in marked)


def test_curves_differ_in_colour_and_line_and_neighbours_in_both():
    figure = certificate_figure([made_certificate()] * 28)
    styles = [(line.get_color(), line.get_linestyle()) for line in curves(figure)]
    assert len(set(styles)) == 28
    for one, other in pairwise(styles):
        assert one[0] != other[0] and one[1] != other[1]
    # also in grey: no colour is as light as the paper
    assert max(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) for colour, _ in styles) < 0.75
    with pytest.raises(InputError, match="at most 28"):
        certificate_figure([made_certificate()] * 29)


@pytest.mark.parametrize(
    ("changes", "mark", "common"),
    [
        ({}, "", "Berk-Jones band, alpha 0.05, 100 episodes, no return below 0"),
        ({"method": "dkw"}, " (DKW band)", "alpha 0.05, 100 episodes, no return below 0"),
        ({"alpha": 0.001}, " (alpha 0.001)", "Berk-Jones band, 100 episodes, no return below 0"),
        ({"n_episodes": 5}, " (5 episodes)", "Berk-Jones band, alpha 0.05, no return below 0"),
        ({"min_return": -1.0}, " (no return below -1)", "Berk-Jones band, alpha 0.05, 100 episodes"),
        ({"method": "dkw", "n_episodes": 5}, " (DKW band, 5 episodes)", "alpha 0.05, no return below 0"),
        ({"alpha": 0.0500000001}, " (alpha 0.0500000001)", "Berk-Jones band, 100 episodes, no return below 0"),
    ],
)
def test_what_is_alike_is_the_title_and_what_differs_is_in_the_legend(changes, mark, common):
    figure = certificate_figure([made_certificate(), made_certificate(**changes)], ["a", "b"])
    texts = legend(figure)
    assert texts[1] == f"b{mark}"
    assert figure.get_suptitle() == common
    assert (texts[0] == "a") == (not changes)
    assert figure.axes[0].get_ylim()[0] == min(0.0, changes.get("min_return", 0.0))


ALIKE = "Berk-Jones band, alpha 0.05, 100 episodes, no return below 0"


@pytest.mark.parametrize(
    ("first", "second", "marks"),
    [
        ({}, {"env_kwargs": {}}, (" (env_kwargs unknown)", " (env_kwargs none)")),
        ({"env_kwargs": {}}, {"env_kwargs": {"length": 2}}, (" (env_kwargs none)", ' (env_kwargs {"length": 2})')),
        ({"env_kwargs": {"a": "x" * 50}}, {"env_kwargs": {"a": "y" * 50}}, (" (env_kwargs no. 1)", " (env_kwargs no. 2)")),
        ({"env_kwargs": {"sigma": 0.4}}, {"env_kwargs": {"sigma": 0.2}, "sigma": 0.2}, ("", "")),
        (
            {"env_kwargs": {"sigma": 0.4}},
            {"env_kwargs": {"sigma": 0.2}},
            (" (env_kwargs none)", ' (env_kwargs {"sigma": 0.2})'),
        ),
        (
            {"env_wrappers": {"env_wrapper": [noise(0.4)]}},
            {"env_wrappers": {"env_wrapper": [noise(0.2)]}, "sigma": 0.2},
            ("", ""),
        ),
        (
            {"env_wrappers": {"env_wrapper": ["a.TimeLimit", noise(0.4)]}},
            {"env_wrappers": {"env_wrapper": [noise(0.4)]}},
            (" (env_wrappers no. 1)", " (env_wrappers no. 2)"),
        ),
        (
            {"sensor_sigma": [0.1, 0.2]},
            {},
            (" (radius in units of sigma [0.1, 0.2])", " (radius in units of the observation)"),
        ),
        ({"sensor_sigma": {"a": 1}}, {"sensor_sigma": {"a": 1}}, ("", "")),
        ({"clean_keys": ["a", "b"]}, {"clean_keys": []}, (" (not covered: entries a, b)", "")),
        ({"clean_keys": ["a"]}, {"clean_keys": ["a"]}, (" (not covered: entries a)",) * 2),
        ({"clean_keys": ["$\\x$\n"]}, {"clean_keys": None}, (r" (not covered: entries \$\x\$\n)", "")),
    ],
)
def test_what_hides_another_task_or_is_not_covered_is_in_the_legend(tmp_path, first, second, marks):
    figure = certificate_figure([made_certificate(**first), made_certificate(**second)], ["a", "b"])
    assert legend(figure) == [f"a{marks[0]}", f"b{marks[1]}"]
    assert figure.get_suptitle() == ALIKE
    figure.savefig(tmp_path / "a.png")


def test_where_algorithms_are_compared_each_has_its_colour_whatever_the_order():
    made = [made_certificate(algo=algo) for algo in ("ppo", "camp_dqn", "gaussian_dqn", "my_algo", "camp_dqn")]
    forth, back = curves(certificate_figure(made)), curves(certificate_figure(made[:4][::-1]))
    assert [line.get_color() for line in forth[:4]] == [line.get_color() for line in back[::-1]]
    assert forth[1].get_color() == "#0072B2" and forth[4].get_color() != "#0072B2"
    # the second curve of an algorithm is a shade of its colour, in another line
    blue = np.array(to_rgb(forth[4].get_color())) / to_rgb("#0072B2")[2]
    assert blue.argmax() == 2 and forth[4].get_linestyle() != forth[1].get_linestyle()
    assert len({(line.get_color(), line.get_linestyle()) for line in forth}) == 5


def test_axes_say_the_unit_of_the_radius():
    assert certificate_figure([made_certificate()]).get_supxlabel().endswith("in units of the observation")
    assert certificate_figure([made_certificate(pixels=True)]).get_supxlabel().endswith("in pixel values")
    assert certificate_figure([made_certificate(sensor_sigma=[1.0, 2.0])]).get_supxlabel().endswith("each sensor's sigma")


def test_a_share_of_alpha_is_told_from_all_of_it():
    figure = certificate_figure([made_certificate(looks=[50, 100], band_alpha=0.025), made_certificate()], ["a", "b"])
    assert legend(figure) == ["a (alpha 0.05 (0.025 for the returns))", "b (alpha 0.05)"]


def test_panels_by_sigma_ascend_and_one_label_has_one_colour():
    made = [made_certificate(sigma=sigma) for sigma in (0.4, 0.2, 0.2, 0.4, 0.6, 0.8)]
    figure = certificate_figure(made, ["CAMP", "DQN", "CAMP", "DQN", "CAMP", "CAMP"], by="sigma")
    assert [axes.get_title() for axes in figure.axes] == ["sigma 0.2", "sigma 0.4", "sigma 0.6", "sigma 0.8"]
    assert [legend(figure, panel) for panel in range(4)] == [["DQN", "CAMP"], ["CAMP", "DQN"], ["CAMP"], ["CAMP"]]
    colours = {
        (text, line.get_color(), line.get_linestyle())
        for panel in range(4)
        for text, line in zip(legend(figure, panel), curves(figure, panel), strict=True)
    }
    assert len(colours) == 2
    with pytest.raises(InputError, match="labels must be distinct"):
        certificate_figure(made, ["CAMP"] * 6, by="sigma")
    assert default_labels(made, by="sigma") == [
        "dqn, Made-v0 (1)",
        "dqn, Made-v0 (1)",
        "dqn, Made-v0 (2)",
        "dqn, Made-v0 (2)",
        "dqn, Made-v0",
        "dqn, Made-v0",
    ]


def test_pixels_divide_radii_and_say_so():
    made = made_certificate(sigma=12.75, radii=[0.0, 25.5, 51.0])
    figure = certificate_figure([made], pixels=True)
    np.testing.assert_allclose(curves(figure)[0].get_xdata(), [0, 0.1, 0.2])
    assert figure.get_supxlabel().endswith("in pixel values / 255")
    assert legend(figure) == ["dqn, Made-v0, sigma 12.75/255"]
    assert "255" not in certificate_figure([made]).get_supxlabel()
    assert certificate_figure([made], ["a"], pixels=True, by="sigma").axes[0].get_title() == "sigma 12.75/255"


def test_names_are_set_as_they_stand_and_labels_may_hold_mathematics(tmp_path):
    hostile = made_certificate(env_id=r"$\nonsense$", method=r"$\nonsense$")
    certificate_figure([hostile, replace(hostile, method="dkw")]).savefig(tmp_path / "a.png")
    certificate_figure([hostile]).savefig(tmp_path / "a.png")
    figure = certificate_figure([made_certificate()] * 2, [r"$\lambda = 1$", "_hidden"])
    assert [text.strip() for text in legend(figure)] == [r"$\lambda = 1$", "_hidden"]
    figure.savefig(tmp_path / "a.png")


def test_the_figure_refuses_what_cannot_be_compared():
    with pytest.raises(InputError, match=r"certificate 2: .* Other-v0, not comparable with certificate 1 for Made-v0"):
        certificate_figure([made_certificate(), made_certificate(env_id="Other-v0")])
    with pytest.raises(InputError, match="no certificate"):
        certificate_figure([])
