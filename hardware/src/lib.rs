//! What the machine offers: CPUs, limits, file systems; preflight checks with remedies.
