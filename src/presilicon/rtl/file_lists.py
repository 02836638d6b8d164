"""File lists that tools read: a plain one, for Vivado and for Quartus."""

from collections.abc import Sequence


def file_lists(name: str, files: Sequence[str]) -> dict[str, str]:
    """The lists of a directory's sources, by file name; headers are in `rtl`.

    >>> sorted(file_lists("mac", ["rtl/mac_top.sv"]))
    ['mac.f', 'quartus.qip', 'quartus.qsf', 'vivado.tcl']
    """
    vivado = [
        "# In a Vivado project: source vivado.tcl",
        "set here [file dirname [file normalize [info script]]]",
        *(f"read_verilog -sv $here/{file}" for file in files),
        "set_property include_dirs [list $here/rtl] [current_fileset]",
    ]
    quartus = [
        *(
            f'set_global_assignment -name SYSTEMVERILOG_FILE [file join $::quartus(qip_path) "{file}"]'
            for file in files
        ),
        'set_global_assignment -name SEARCH_PATH [file join $::quartus(qip_path) "rtl"]',
    ]
    return {
        f"{name}.f": "\n".join(["+incdir+rtl", *files, ""]),
        "vivado.tcl": "\n".join([*vivado, ""]),
        "quartus.qip": "\n".join([*quartus, ""]),
        "quartus.qsf": f"# For the project's .qsf:\nset_global_assignment -name QIP_FILE {name}/quartus.qip\n",
    }
