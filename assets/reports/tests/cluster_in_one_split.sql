{{ config(meta={'description': 'No cluster of edits that hang together is in two splits.'}) }}
-- A near-duplicate of a training edit in another split measures memory.
select cluster
from {{ ref('stg_edits') }}
group by cluster
having count(distinct split) > 1
