// Result<T> and Error: how every room reports failure.
//
// An Error is one sentence, built from the inside out: the innermost text says why, each caller that
// knows more puts what it was doing, and on which 'object', in front:
//   "load ClusterPolicy 'gpus': spec.mig.strategy: must be one of none, single, mixed; got 'both'"
// Errors are plain values: copyable, comparable by code, safe to hand between threads.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace gpuop {

enum class Code {
  kUnknown,      // a fault with no better name
  kInvalid,      // input that can never work (bad syntax, wrong type, out of range)
  kNotFound,     // the named thing does not exist
  kExists,       // the thing to be made is already there
  kConflict,     // somebody else changed it first; read again and retry
  kPermission,   // not allowed
  kBusy,         // in use: a lock is held, a port is taken
  kNoSpace,      // disk or quota full
  kTimeout,      // a deadline passed
  kUnavailable,  // the other side is away or overloaded; the same call may work later
  kCancelled,    // the caller gave up
  kUnsupported,  // understood, and deliberately not offered
  kIo,           // the operating system said no
};

// The lower-case word for a code, e.g. "not found".
std::string_view code_name(Code code);

class [[nodiscard]] Error {
 public:
  Error(Code code, std::string text) : code_(code), text_(std::move(text)) {}

  Code code() const { return code_; }
  // The whole sentence, outermost context first.
  const std::string& text() const { return text_; }

  // Puts `doing` and ": " in front of the text; the code stays.
  Error in(std::string_view doing) &&;
  Error in(std::string_view doing) const&;

 private:
  Code code_;
  std::string text_;
};

template <class T = void>
using Result = std::expected<T, Error>;

// fail(Code::kInvalid, "…") converts to any Result<T>.
inline std::unexpected<Error> fail(Code code, std::string text) {
  return std::unexpected(Error(code, std::move(text)));
}
inline std::unexpected<Error> fail(Error error) {
  return std::unexpected(std::move(error));
}

// "open 'PATH': Permission denied", with the code that fits `err` (an errno value).
Error errno_error(std::string_view doing, int err);

namespace detail {
template <class T, class E>
T take(std::expected<T, E>&& r) {
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}
}  // namespace detail

// TRY(expr): the value of a Result, or return its error from the enclosing function.
// TRY_IN(expr, doing): the same, with context put in front of the error.
#define TRY(expr)                                                 \
  __extension__({                                                 \
    auto try_result_ = (expr);                                    \
    if (!try_result_) [[unlikely]]                                \
      return ::std::unexpected(::std::move(try_result_).error()); \
    ::gpuop::detail::take(::std::move(try_result_));              \
  })
#define TRY_IN(expr, doing)                                                 \
  __extension__({                                                           \
    auto try_result_ = (expr);                                              \
    if (!try_result_) [[unlikely]]                                          \
      return ::std::unexpected(::std::move(try_result_).error().in(doing)); \
    ::gpuop::detail::take(::std::move(try_result_));                        \
  })

}  // namespace gpuop
