//! The system-wide io_uring switch. Whether a ring really can be made is the reactor's probe; this
//! says why it could not.

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// `kernel.io_uring_disabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoUringSwitch {
    /// 0, or a kernel before 6.6 that has no switch.
    Open,
    /// 1: only for CAP_SYS_ADMIN or the group in `kernel.io_uring_group`.
    Restricted,
    /// 2: off for everybody.
    Off,
}

/// Reads the switch.
pub fn io_uring_switch() -> IoUringSwitch {
    parse(&std::fs::read_to_string(SWITCH).unwrap_or_default())
}

fn parse(text: &str) -> IoUringSwitch {
    match text.trim() {
        "1" => IoUringSwitch::Restricted,
        "2" => IoUringSwitch::Off,
        _ => IoUringSwitch::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_values() {
        assert_eq!(parse("0\n"), IoUringSwitch::Open);
        assert_eq!(parse(""), IoUringSwitch::Open);
        assert_eq!(parse("1\n"), IoUringSwitch::Restricted);
        assert_eq!(parse("2\n"), IoUringSwitch::Off);
    }
}
