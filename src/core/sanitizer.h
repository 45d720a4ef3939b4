// DDL_ADDRESS_SANITIZER is defined in builds with the address sanitizer. The compilers say it in different ways.
#pragma once

#ifdef __SANITIZE_ADDRESS__
#define DDL_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DDL_ADDRESS_SANITIZER
#endif
#endif
