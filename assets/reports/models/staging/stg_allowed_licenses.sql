select * from {{ source('lineage', 'allowed_licenses') }}
