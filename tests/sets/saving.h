#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "engine/restore.h"
#include "engine/save.h"
#include "sets/folders.h"

namespace varve::test {

/// One for the process.
LayoutService& layout_service();

/// Options for a small save that always does the same operations in the same order.
SaveOptions save_options(const std::string& job, uint64_t step);

/// Saves a folder with save_options().
Result<SaveReport> save(const Store& store, const std::string& folder, const std::string& job, uint64_t step);

/// A new store in `fs`, opened.
std::unique_ptr<Store> make_store(FileSystem& fs, const std::string& path = "/store");
/// The store that is there.
std::unique_ptr<Store> open_store(FileSystem& fs, const std::string& path = "/store");

/// Puts a file of a store there anew, durable, with other contents. Whoever has it open goes on with the old one.
void rewrite(FileSystem& fs, const std::string& path, const std::function<void(ByteVector&)>& change);

/// Restores a set into a new folder and compares it with what was saved.
testing::AssertionResult restores_as(const Store& store, const SetName& name, const Snapshot& saved,
                                     const RestoreOptions& options = {.filter = {}, .sync = false, .thread_count = 1});

/// Whether verify finds no damage but to what is disposable.
testing::AssertionResult is_whole(const Store& store);

}  // namespace varve::test
