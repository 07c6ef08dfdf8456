"""Build and metadata of rareword: four import packages below `rareword` and one C++ extension."""

import os
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = ("schemas", "transforms", "trainer", "pipelines")
KERNELS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("transforms/kernels/*.cc"))
HEADERS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("transforms/kernels/*.h"))


class BuildKernels(build_ext):
    """Turns a missing compiler into a sentence that says what to install."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:
            raise SystemExit(
                "rareword needs a C++17 compiler to build its kernels "
                "(on Debian: apt-get install g++). The compiler said: "
                f"{error}"
            ) from error


ParallelCompile("RAREWORD_BUILD_JOBS", default=os.cpu_count() or 1).install()

setup(
    name="rareword",
    version="0.1.0",
    description="Exact subword segmentation of parallel corpora on Apache Beam, and translation "
    "models trained on it",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.13",
    packages=[f"rareword.{folder}" for folder in FOLDERS],
    package_dir={f"rareword.{folder}": folder for folder in FOLDERS},
    package_data={
        f"rareword.{folder}": ["py.typed", "*.pyi", "*.html", "*.js"] for folder in FOLDERS
    },
    ext_modules=[
        Pybind11Extension(
            "rareword.transforms._kernels",
            KERNELS,
            depends=HEADERS,
            cxx_std=17,
            extra_compile_args=["-O3", "-pthread"],
            extra_link_args=["-pthread"],
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    entry_points={"console_scripts": ["rareword = rareword.pipelines.cli:main"]},
    install_requires=[
        "apache-beam>=2.70,<3",
        "fsspec>=2024.2",
        "jinja2>=3.1",
        "numpy>=1.26",
        "pyarrow>=17",
        "pyyaml>=6",
        "sacrebleu>=2.4",
        "sacremoses>=0.1.1",
        "safetensors>=0.4",
        "torch>=2.8",
    ],
    extras_require={
        "align": ["sil-thot>=3.5.3,<4", "threadpoolctl>=3.5"],
        "demo": ["babel>=2.14", "pycountry>=24.6"],
        "segmenters": ["morfessor>=2.0.6,<3", "pyphen>=0.14", "sentencepiece>=0.2.3"],
        "tensorboard": ["tensorboard>=2.14"],
        "gcp": ["apache-beam[gcp]", "gcsfs>=2024.2"],
        "dev": [
            "babel>=2.14",
            "gcp-storage-emulator>=2024.8",
            "gcsfs>=2024.2",
            "hypothesis>=6.100",
            "morfessor>=2.0.6,<3",
            "mypy>=1.10",
            "playwright>=1.50",
            "pybind11>=2.12",
            "pycountry>=24.6",
            "pyphen>=0.14",
            "pytest>=8",
            "pytest-xdist>=3.5",
            "ruff>=0.6",
            "sentencepiece>=0.2.3",
            "setuptools>=77",
            "sentencepiece>=0.2",
            "sil-thot>=3.5.3,<4",
            "subword-nmt==0.3.8",
            "tensorboard>=2.14",
            "threadpoolctl>=3.5",
            "tokenizers>=0.20",
            "types-PyYAML",
            "zstandard>=0.22",
        ],
    },
    zip_safe=False,
)
