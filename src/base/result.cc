#include "base/result.h"

#include <cerrno>
#include <cstring>

namespace gpuop {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kUnknown:
      return "unknown";
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not found";
    case Code::kExists:
      return "already exists";
    case Code::kConflict:
      return "conflict";
    case Code::kPermission:
      return "permission denied";
    case Code::kBusy:
      return "busy";
    case Code::kNoSpace:
      return "no space";
    case Code::kTimeout:
      return "timeout";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kCancelled:
      return "cancelled";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kIo:
      return "i/o error";
  }
  return "unknown";
}

Error Error::in(std::string_view doing) && {
  text_.insert(0, ": ");
  text_.insert(0, doing);
  return std::move(*this);
}

Error Error::in(std::string_view doing) const& {
  return Error(*this).in(doing);
}

Error errno_error(std::string_view doing, int err) {
  Code code = Code::kIo;
  switch (err) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
    case ENXIO:
    case ENODEV:
      code = Code::kNotFound;
      break;
    case EEXIST:
      code = Code::kExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::kPermission;
      break;
    case EBUSY:
    case EADDRINUSE:
    case ETXTBSY:
      code = Code::kBusy;
      break;
    case ENOSPC:
    case EDQUOT:
      code = Code::kNoSpace;
      break;
    case ETIMEDOUT:
      code = Code::kTimeout;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EPIPE:
      code = Code::kUnavailable;
      break;
    case ENOSYS:
    case EOPNOTSUPP:
      code = Code::kUnsupported;
      break;
    case EINVAL:
      code = Code::kInvalid;
      break;
    default:
      break;
  }
  std::string text(doing);
  text += ": ";
  text += std::strerror(err);  // glibc's strerror is thread-safe for known errors
  return {code, std::move(text)};
}

}  // namespace gpuop
