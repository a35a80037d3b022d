"""Where readings come from: NVML, AMD SMI, or a recording; all behind the Protocol in `base`."""
