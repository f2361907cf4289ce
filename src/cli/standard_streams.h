#pragma once

namespace varve::cli {

/// Fills the places of standard streams that the program was started without, so that no file of a store gets one of
/// them, and what is printed with it. What is written there fails as before (EBADF). Call before anything is opened.
void hold_standard_streams();

}  // namespace varve::cli
