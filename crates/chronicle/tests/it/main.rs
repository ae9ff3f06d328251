//! The command as people and agents call it: words in, streams and exit status out.

mod architecture;
mod bad_input;
mod clients;
mod contract;
mod crash;
mod demo;
mod faults;
mod hooks;
mod install;
mod integrations;
mod mcp;
mod off;
mod payloads;
mod reference;
mod repositories;
mod run;
mod support;
mod taking_back;
mod terminal;
mod watch;
mod workspace;
