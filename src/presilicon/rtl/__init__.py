"""The instrument as SystemVerilog: sources, generated tops, co-simulation, synthesis."""
