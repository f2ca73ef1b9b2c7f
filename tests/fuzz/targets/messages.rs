#![no_main]

#[path = "../bodies/messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::message(data));
